//! Does the leader that was stopped write too late?

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
