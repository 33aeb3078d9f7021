//! Ten processes migrate one database once, also when one of them is killed.

#[test]
fn one_migrates_while_others_wait_even_if_it_is_killed() {
    let printed = crate::printed_by("migrate", &[]);
    let (at_once, killed) = printed.split_once("The same again").expect("two runs");
    for (run, went_on) in [(at_once, "10"), (killed, "9")] {
        assert_eq!(crate::line(run, "  processes that go on:"), went_on);
        assert_eq!(crate::line(run, "  migrations that ran twice:"), "0");
        assert_eq!(crate::line(run, "  migrations that are applied:"), "4");
        let waited = crate::line(run, "  processes that waited for another:");
        // On a busy machine, one can start after everything is done.
        assert!((1..=9).contains(&waited.parse().unwrap_or(0)), "{printed}");
    }
    assert_eq!(
        at_once.matches(": applied 4, and goes on").count(),
        1,
        "{printed}"
    );
    assert_eq!(killed.matches(", and is killed").count(), 1, "{printed}");
    assert_eq!(
        killed.matches(": applied 3, and goes on").count(),
        1,
        "{printed}"
    );
}
