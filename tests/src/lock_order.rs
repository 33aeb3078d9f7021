//! The order of locks that this process has recorded.

use advisory_runtime::inventory::{Edge, LockOrder, lock_order};

/// The records of locks with patterns that begin with `of`.
pub fn order(of: &str) -> LockOrder {
    let mut order = lock_order();
    order.edges.retain(|edge| is_of(edge, of));
    order
        .cycles
        .retain(|cycle| cycle.iter().all(|edge| is_of(edge, of)));
    order
}

fn is_of(edge: &Edge, of: &str) -> bool {
    edge.held.lock.starts_with(of) && edge.asked.lock.starts_with(of)
}

/// `held > asked`, each once.
pub fn edges(of: &str) -> Vec<String> {
    let text = |edge: &Edge| format!("{} > {}", edge.held.lock, edge.asked.lock);
    let mut edges: Vec<String> = order(of).edges.iter().map(text).collect();
    edges.sort();
    edges
}
