//! The late write of a process that was stopped is refused by the fence, and passes without one.

#[test]
fn the_fence_refuses_the_late_write_of_a_stopped_process() {
    let printed = crate::printed_by("fenced_report", &[]);
    let refused = crate::line(&printed, "first   2026-11 ");
    assert!(
        refused.starts_with("refused: lease `report:<month>` was lost"),
        "{printed}"
    );
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| !line.ends_with(refused) && !line.starts_with("2026"))
        .collect();
    assert_eq!(
        lines,
        [
            "first   holds both leases, and is stopped",
            "second  2026-10 written",
            "second  2026-11 written",
            "second  was told that 0 of its leases were lost",
            "first   wakes up",
            "first   2026-10 written",
            "first   was told that 2 of its leases were lost",
            "",
            "month    fence  author  token",
        ],
        "{printed}"
    );
    let token = |start: &str| -> i64 { crate::line(&printed, start).trim().parse().unwrap() };
    assert!(token("2026-10  no     first ") < token("2026-11  yes    second "));
}
