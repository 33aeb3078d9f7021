//! Storage: tables, pools, migrations, and errors.

pub mod error;
pub mod migrate;
pub mod pools;
pub mod schema;

pub use error::{Error, Refusal, Result};
pub use pools::{BlockingPool, Pool};
