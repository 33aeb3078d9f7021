//! One request generates the events, and the others list them.

#[test]
fn events_are_generated_once_and_by_whoever_asks_again() {
    let printed = crate::printed_by("generate_events", &[]);
    let [events, too_many, refused] = crate::figures(&printed, "without the lock");
    assert_eq!((events - too_many, refused), (300, 0), "{printed}");
    assert!(too_many > 0, "{printed}");
    let [events, too_many, refused] = crate::figures(&printed, "with the lock");
    assert_eq!((events, too_many), (300, 0), "{printed}");
    assert!(refused > 0, "{printed}");

    let by_hand = printed.split_once("taken by hand:\n");
    let by_hand = by_hand.expect("the second part").1.lines();
    let lines: Vec<&str> = by_hand.map(str::trim).collect();
    assert!(lines[0].starts_with("refused: "), "{printed}");
    assert_eq!(
        lines[1..],
        ["it has committed:", "listed: 30 events"],
        "{printed}"
    );
}
