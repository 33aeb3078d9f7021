//! Runs the check.

use crate::action::Action;
use crate::bug::Bug;
use crate::lease_property::LeaseProperty;
use crate::leases::Leases;
use stateright::{Checker, HasDiscoveries, Model};

/// The result of the check of all states.
#[derive(Clone, Debug)]
pub struct Checked {
    pub states: usize,
    /// The longest path. With two threads the path to a state is not always its shortest.
    pub depth: usize,
    /// The properties that are broken, each with a path to it.
    pub broken: Vec<(LeaseProperty, Vec<Action>)>,
    /// The names of what should be possible and is not.
    pub impossible: Vec<&'static str>,
}

/// Visits every state.
#[must_use]
pub fn check(model: &Leases) -> Checked {
    let checker = model.clone().checker().threads(2).spawn_bfs().join();
    let broken = LeaseProperty::ALL.into_iter().filter_map(|property| {
        let path = checker.discovery(property.name())?;
        Some((property, path.into_actions()))
    });
    let possible = model.properties().into_iter().map(|property| property.name);
    let impossible = possible.filter(|name| {
        LeaseProperty::ALL
            .iter()
            .all(|property| property.name() != *name)
            && checker.discovery(name).is_none()
    });
    Checked {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        broken: broken.collect(),
        impossible: impossible.collect(),
    }
}

/// The longest story that is looked for, in steps. The longest of a bug has 12.
const LONGEST: usize = 16;

/// The shortest path, with the fewest faults, on which the bug breaks its property.
#[must_use]
pub fn find(bug: Bug) -> Option<(Leases, Vec<Action>)> {
    let bounds = (0..=Leases::two().faults).flat_map(|faults| {
        let depths = 2..=LONGEST + 1;
        depths.map(move |states| (faults, states))
    });
    let mut found = bounds.map(|(faults, states)| {
        let model = Leases {
            faults,
            ..Leases::two().with(bug)
        };
        let name = bug.property().name();
        let finish = HasDiscoveries::AllOf([name].into());
        // The checker returns the last of several paths, so longer ones are kept from it.
        let checker = model.clone().checker().target_max_depth(states);
        let checker = checker.finish_when(finish).spawn_bfs().join();
        let path = checker.discovery(name)?;
        Some((model, path.into_actions()))
    });
    found.find_map(std::convert::identity)
}
