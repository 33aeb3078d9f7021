//! The two pools: requests and workers are async, the back office is not.

use diesel::PgConnection;
use diesel::r2d2::{self, ConnectionManager};
use diesel_async::AsyncPgConnection;
use diesel_async::pooled_connection::deadpool;

pub type Pool = deadpool::Pool<AsyncPgConnection>;
pub type BlockingPool = r2d2::Pool<ConnectionManager<PgConnection>>;
