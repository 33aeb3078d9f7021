//! Every state within the bounds.

use advisory_model::{LeaseProperty, Leases, check};

fn passes(model: &Leases, at_least: usize) {
    let checked = check(model);
    let broken: Vec<_> = checked
        .broken
        .iter()
        .map(|(property, _)| property)
        .collect();
    assert!(broken.is_empty(), "{broken:?}");
    assert!(checked.impossible.is_empty(), "{:?}", checked.impossible);
    assert!(checked.states > at_least, "{}", checked.states);
}

#[test]
fn two_processes_keep_every_property() {
    passes(&Leases::two(), 100_000);
}

#[test]
fn three_processes_keep_every_property() {
    passes(&Leases::three(), 300_000);
}

/// Otherwise the check says nothing.
#[test]
fn every_property_has_a_bug_that_breaks_it() {
    for property in LeaseProperty::ALL {
        let mut bugs = advisory_model::Bug::ALL.into_iter();
        assert!(
            bugs.any(|bug| bug.property() == property),
            "{}",
            property.name()
        );
    }
}
