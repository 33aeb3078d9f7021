//! The sessions that create and drop the databases of this process's tests.
//!
//! They stay open, since beginning one takes the server as long as dropping a database. They run on
//! a runtime of their own, because that of a test ends with the test.

use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;
use tokio_postgres::Client;

use crate::HarnessError;
use crate::database::{chain, open, with_database};
use crate::server::Server;

/// How long dropping a database may delay its test.
const DROP_TIMEOUT: Duration = Duration::from_secs(30);

/// A database as PostgreSQL ships it, which had one session. The first session of each copy finds
/// the file of the system catalogs that this one wrote.
const TEMPLATE: &str = "advisory_tests_template";

/// Creates a database on the process's own server, or on the one that it was given.
pub(crate) async fn create(server: &'static Server, name: String) -> Result<(), HarnessError> {
    let creating = runtime()?.spawn(async move {
        let template = if server.is_own() {
            template(server).await?
        } else {
            "template0"
        };
        run(server, &server.create_database(&name, template)).await
    });
    let created = creating.await;
    created.map_err(|error| HarnessError::new(format!("creating a database: {error}")))?
}

/// Drops a database, also if sessions are connected to it. Blocks, and needs no runtime.
pub(crate) fn drop_database(server: &'static Server, name: &str) {
    let Ok(runtime) = runtime() else { return };
    let (done, is_done) = mpsc::channel();
    let drop_database = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
    runtime.spawn(async move { done.send(run(server, &drop_database).await) });
    // The test may fail because of this, but not hang.
    drop(is_done.recv_timeout(DROP_TIMEOUT));
}

/// Makes the template when it is first needed. Nobody can connect to it afterwards, so it can be
/// copied concurrently.
async fn template(server: &Server) -> Result<&'static str, HarnessError> {
    static TEMPLATE_OF_THIS_PROCESS: OnceCell<&str> = OnceCell::const_new();
    let making = async || {
        run(server, &server.create_database(TEMPLATE, "template0")).await?;
        drop(open(&with_database(server.url(), TEMPLATE)).await?);
        let close = format!("ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false");
        run(server, &close).await?;
        Ok(TEMPLATE)
    };
    TEMPLATE_OF_THIS_PROCESS
        .get_or_try_init(making)
        .await
        .copied()
}

/// Runs a statement in a session that is idle, or in a new one.
async fn run(server: &Server, sql: &str) -> Result<(), HarnessError> {
    static IDLE: Mutex<Vec<Client>> = Mutex::new(Vec::new());
    let idle = || IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = idle().pop().filter(|client| !client.is_closed());
    let client = match kept {
        Some(client) => client,
        None => open(server.url()).await?.0,
    };
    let done = client.batch_execute(sql).await;
    idle().push(client);
    done.map_err(|error| HarnessError::new(format!("{sql}: {}", chain(&error))))
}

fn runtime() -> Result<&'static Runtime, HarnessError> {
    static RUNTIME: OnceLock<Result<Runtime, HarnessError>> = OnceLock::new();
    let start = || {
        let mut builder = Builder::new_multi_thread();
        let started = builder.worker_threads(1).enable_all().build();
        started.map_err(|error| HarnessError::new(format!("a runtime: {error}")))
    };
    RUNTIME.get_or_init(start).as_ref().map_err(Clone::clone)
}
