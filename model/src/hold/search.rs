//! Visits every state of a held row.

use super::{HoldBug, HoldProperty, HoldState, HoldStep};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Debug)]
pub struct HoldChecked {
    pub states: usize,
    /// The properties that are broken, each with a shortest path to it.
    pub broken: Vec<(HoldProperty, Vec<HoldStep>)>,
}

/// Visits every state, with a bug or without one.
#[must_use]
pub fn check_hold(bug: Option<HoldBug>) -> HoldChecked {
    let start = HoldState::granted();
    let mut before: HashMap<HoldState, Option<(HoldState, HoldStep)>> = HashMap::new();
    before.insert(start, None);
    let mut next = VecDeque::from([start]);
    let mut broken: Vec<(HoldProperty, Vec<HoldStep>)> = Vec::new();
    while let Some(state) = next.pop_front() {
        for property in HoldProperty::ALL {
            let is_new = broken.iter().all(|(found, _)| *found != property);
            if is_new && !property.is_true(&state, bug) {
                broken.push((property, path(&before, state)));
            }
        }
        for step in HoldStep::ALL {
            if let Some(after) = state.after(step, bug)
                && !before.contains_key(&after)
            {
                before.insert(after, Some((state, step)));
                next.push_back(after);
            }
        }
    }
    HoldChecked {
        states: before.len(),
        broken,
    }
}

fn path(
    before: &HashMap<HoldState, Option<(HoldState, HoldStep)>>,
    mut state: HoldState,
) -> Vec<HoldStep> {
    let mut steps = Vec::new();
    while let Some(Some((earlier, step))) = before.get(&state) {
        steps.push(*step);
        state = *earlier;
    }
    steps.reverse();
    steps
}

#[cfg(test)]
mod tests {
    use super::check_hold;
    use crate::hold::{HoldBug, HoldProperty};

    #[test]
    fn a_held_row_keeps_every_property() {
        let checked = check_hold(None);
        assert!(checked.broken.is_empty(), "{:?}", checked.broken);
        assert!(checked.states > 10_000, "{}", checked.states);
    }

    #[test]
    fn each_bug_of_a_hold_breaks_its_property() {
        for bug in HoldBug::ALL {
            let broken = check_hold(Some(bug)).broken;
            let mut properties = broken.iter().map(|(property, _)| *property);
            assert!(
                properties.any(|property| property == bug.property()),
                "{bug:?}: {broken:?}"
            );
        }
        for property in HoldProperty::ALL {
            let mut bugs = HoldBug::ALL.into_iter();
            assert!(bugs.any(|bug| bug.property() == property), "{property:?}");
        }
    }
}
