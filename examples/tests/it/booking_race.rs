//! The race shows what the README says it does.

#[test]
fn the_lock_ends_double_bookings_and_the_readme_shows_the_table() {
    let printed = crate::printed_by("booking_race", &[]);
    let [bookings, double, _] = crate::figures(&printed, "without the lock");
    assert!(double > 0 && bookings == 20 + double, "{printed}");
    let [bookings, double, waits] = crate::figures(&printed, "with the lock");
    assert_eq!((bookings, double), (20, 0), "{printed}");
    assert!(waits > 0, "{printed}");

    let words = |text: &str| {
        let is_word = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
        let words = text.split_whitespace().filter(is_word);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let readme = include_str!("../../../README.md");
    let shown = readme
        .split("```text\n")
        .nth(1)
        .expect("the README's table");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert_eq!(words(shown), words(&printed));
}
