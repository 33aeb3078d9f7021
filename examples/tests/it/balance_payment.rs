//! The total stays the same with the lock, and does not without it.

/// Account 1, account 2, together, paid, refused.
fn figures(printed: &str, name: &str) -> [i64; 5] {
    let figures = crate::line(printed, name).split_whitespace();
    let figures: Vec<i64> = figures
        .map(|figure| figure.parse().expect("a number"))
        .collect();
    figures.try_into().expect("five numbers")
}

#[test]
fn money_is_neither_lost_nor_made_under_the_lock() {
    let printed = crate::printed_by("balance_payment", &[]);
    assert_eq!(
        crate::line(&printed, "at the start")
            .split_whitespace()
            .nth(2),
        Some("2000")
    );
    // The exit code says whether money was lost or created: the total can be right by luck.
    let [.., paid, refused] = figures(&printed, "without the lock");
    assert_eq!(paid + refused, 400);
    let [first, second, together, paid, refused] = figures(&printed, "with the lock");
    assert_eq!(together, 2000, "{printed}");
    assert!(first >= 0 && second >= 0, "{printed}");
    assert_eq!(paid + refused, 400);
    assert!(refused > 0, "nothing was too much: {printed}");
}
