//! The picture shows the race, and the README shows the picture.

const README: &str = include_str!("../../../README.md");

/// The committed picture is from another run: its times differ, its words do not.
#[test]
fn without_the_lock_several_book_and_with_it_one() {
    let drawn = crate::printed_by("race_picture", &[]);
    for picture in [drawn.as_str(), include_str!("../../../docs/race.svg")] {
        assert!(picture.contains("books it again"), "{picture}");
        assert!(
            picture.contains("With the lock: 1 of 5 calls books the slot"),
            "{picture}"
        );
        assert!(picture.contains("prefers-color-scheme: dark"), "{picture}");
    }
    assert!(README.contains("](docs/race.svg)"));
}
