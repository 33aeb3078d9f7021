//! Is a killed worker's chunk taken over, when its claim has expired, and every chunk synced once?

#[test]
fn a_killed_workers_chunk_is_taken_over_and_every_chunk_synced_once() {
    let printed = crate::printed_by("sync_workers", &[]);
    let outcome: Vec<&str> = printed.lines().rev().take(2).collect();
    assert_eq!(
        outcome,
        [
            "1 chunk taken over when the claim of worker-1 had expired",
            "12 chunks synced, 1200 rows, 1200 by the checkpoints, 0 twice",
        ],
        "{printed}"
    );
}
