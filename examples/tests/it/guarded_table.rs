//! Each slot is booked once where the table is guarded, and twice where it is not.

#[test]
fn the_guard_refuses_the_write_past_the_lock() {
    let printed = crate::printed_by("guarded_table", &[]);
    let figures = |name| crate::figures(&printed, name);
    assert_eq!(figures("without the guard"), [20, 20, 0]);
    assert_eq!(figures("with the guard"), [20, 0, 20]);
    assert_eq!(
        crate::line(&printed, "The server said:"),
        "this session does not hold the advisory lock \"booking-slot\", which guards the table \"bookings\""
    );
}
