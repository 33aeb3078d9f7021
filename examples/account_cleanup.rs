//! A service cleans up unfinished accounts; a second request for the same e-mail address is refused
//! meanwhile.
//!
//! `cargo run --example account_cleanup` starts a PostgreSQL of its own, or uses
//! `ADVISORY_TEST_DATABASE_URL`. It starts the service on a free port and sends it requests. Look
//! at `Accounts::clean_up`; `error` turns its errors into statuses.

#![allow(clippy::print_stdout, reason = "the statuses are run to be read")]
#![allow(missing_docs, reason = "nothing in a program is public")]

use std::sync::Arc;
use std::time::Duration;

use advisory_runtime::{Error, advisory_lock};
use advisory_tests::Database;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use diesel::prelude::*;
use diesel_async::pooled_connection::deadpool::Pool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use uuid::Uuid;

#[path = "account_cleanup/error.rs"]
mod error;
#[path = "account_cleanup/mail.rs"]
mod mail;

use error::CleanupError;
use mail::Mail;

diesel::table! {
    verification_codes (id) {
        id -> BigInt,
        email -> Text,
        code -> Uuid,
    }
}

const SCHEMA: &str = "CREATE TABLE verification_codes (id bigserial PRIMARY KEY, email text NOT NULL, code uuid NOT NULL)";

#[derive(Clone)]
struct Accounts {
    pool: Pool<AsyncPgConnection>,
    mail: Arc<Mail>,
    /// How long one request may hold the lock of an address.
    max_hold: Duration,
}

impl Accounts {
    /// Sends a code to the owner of the address, and stores it. Two requests at once would send two
    /// codes, and one would not work.
    ///
    /// The lock is session-level, so that no transaction is open while a letter is sent. `trim` and
    /// `lower` change only the key; the body does the same to what it writes.
    #[advisory_lock(
        key = "cleanup:<email|trim|lower>",
        scope = "session",
        wait = "never",
        max_hold = self.max_hold,
        pool = self.pool
    )]
    async fn clean_up(&self, email: &str) -> Result<(), Error> {
        // The same as the key's filters: `str::trim` also strips tabs, and then one address would
        // have two keys.
        let email = email.trim_matches(' ').to_ascii_lowercase();
        let code = Uuid::new_v4();
        self.mail.send(&email, code).await;
        let code = (
            verification_codes::email.eq(email),
            verification_codes::code.eq(code),
        );
        diesel::insert_into(verification_codes::table)
            .values(code)
            .execute(conn)
            .await?;
        Ok(())
    }
}

/// The body of the request is the e-mail address.
async fn clean_up(State(accounts): State<Accounts>, email: String) -> Result<(), CleanupError> {
    accounts.clean_up(&email).await.map_err(CleanupError)
}

/// Serves on a free port of this machine, and returns the address.
async fn serve(accounts: Accounts) -> Outcome<String> {
    let routes = Router::new()
        .route("/cleanup", post(clean_up))
        .with_state(accounts);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(axum::serve(listener, routes).into_future());
    Ok(address)
}

/// Sends a request and prints its status.
async fn request(address: &str, email: &str, note: &str) -> Outcome<()> {
    let length = email.len();
    let request = format!(
        "POST /cleanup HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{email}"
    );
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await??;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    let status = head.lines().next().and_then(|line| line.split_once(' '));
    let (_, status) = status.ok_or("no status")?;
    println!(
        "{email:<18}{note:<30}{}",
        format!("{status}: {body}").trim_end_matches(": ")
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let db = Database::try_create().await?;
    db.run(SCHEMA).await;
    let service = |max_hold| Accounts {
        pool: db.deadpool(4),
        mail: Arc::default(),
        max_hold,
    };

    let accounts = service(Duration::from_secs(30));
    let mail = Arc::clone(&accounts.mail);
    let address = &serve(accounts).await?;
    let slow = request(address, "ada@example.com", "the first letter is slow");
    let meanwhile = async {
        timeout(Duration::from_secs(30), mail.begun.notified()).await?;
        request(address, " Ada@Example.com", "meanwhile, the same address").await?;
        request(address, "bob@example.com", "meanwhile, another one").await?;
        mail.go.notify_one();
        Ok(())
    };
    tokio::try_join!(slow, meanwhile)?;
    request(address, "ada@example.com", "afterwards").await?;

    // The instance above allows half a minute. This one allows less, for a call that never ends.
    let hasty = &serve(service(Duration::from_secs(1))).await?;
    request(hasty, "eve@example.com", "a letter that never leaves").await?;
    request(address, "eve@example.com", "afterwards").await?;
    Ok(())
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
