//! The total stays the same with the lock, and does not without it.

#[test]
fn money_is_neither_lost_nor_made_under_the_lock() {
    let printed = crate::printed_by("balance_payment", &[]);
    let [.., together] = crate::figures::<3>(&printed, "at the start");
    assert_eq!(together, 2000);
    // The exit code says whether money was lost or created: the total can be right by luck.
    let [.., paid, refused] = crate::figures::<5>(&printed, "without the lock");
    assert_eq!(paid + refused, 400);
    let [first, second, together, paid, refused] = crate::figures(&printed, "with the lock");
    assert_eq!(together, 2000, "{printed}");
    assert!(first >= 0 && second >= 0, "{printed}");
    assert_eq!(paid + refused, 400);
    assert!(refused > 0, "nothing was too much: {printed}");
}
