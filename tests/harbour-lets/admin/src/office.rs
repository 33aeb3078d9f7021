//! Where the back office gets its connections.

use lets_store::BlockingPool;

#[derive(Clone)]
pub struct Office {
    pub pool: BlockingPool,
}

impl Office {
    pub fn new(pool: BlockingPool) -> Self {
        Self { pool }
    }
}
