//! The connections of the back office.

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
