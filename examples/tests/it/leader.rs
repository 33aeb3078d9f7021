//! A leader that was stopped writes nothing late.

#[test]
fn the_old_leader_is_refused_and_another_has_taken_over() {
    let printed = crate::printed_by("leader", &[]);
    for part in [
        "is stopped",
        "within the ttl with a larger token: true",
        "wakes up",
        ": refused",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}
