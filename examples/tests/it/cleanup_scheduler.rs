//! One instance cleans up at each tick, and the others do not.

#[test]
fn one_instance_of_ten_cleans_up_at_each_tick() {
    let printed = crate::printed_by("cleanup_scheduler", &[]);
    let ticks: Vec<String> = (1..=3)
        .map(|tick| format!("tick {tick}: 1 cleaned up and deleted 250 keys, 10 skipped it"))
        .collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), ticks);
}
