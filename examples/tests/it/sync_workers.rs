//! A killed worker's chunk is taken over when its claim has expired, and every chunk is synced
//! once.

#[test]
fn a_killed_workers_chunk_is_synced_once_by_another() {
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
