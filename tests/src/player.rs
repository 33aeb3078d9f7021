//! Another process of the test program, which a test stops or kills.

use crate::{Database, Guardian};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// The variable with the role of the process.
pub const ROLE: &str = "ADVISORY_TEST_STOPPED_ROLE";

/// The variable with the address of its database.
pub const URL: &str = "ADVISORY_TEST_STOPPED_URL";

const HELD: &str = "held";

/// Reports to the other process that the lock is held, on a line between those of the test harness.
pub fn say_held() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{HELD}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// A process with a role; killed when dropped or when this process ends, even if it is stopped.
pub struct Player {
    child: Child,
    /// `None` while it is dropped.
    guardian: Option<Guardian>,
}

impl Player {
    /// Starts it with a role: it runs only this test.
    pub fn start(test: &str, db: &Database, role: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", test])
            .env(ROLE, role)
            .env(URL, db.url())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        let guardian = Some(Guardian::of(&child).unwrap());
        Self { child, guardian }
    }

    /// Waits until it has reported that it holds the lock. The lock itself may be missed: it is
    /// released soon, and this process can be suspended meanwhile.
    pub async fn until_held(&mut self) {
        let said = BufReader::new(self.child.stdout.take().unwrap());
        let mut lines = said.lines().map_while(Result::ok);
        let has_said = tokio::task::spawn_blocking(move || lines.any(|line| line == HELD));
        assert!(has_said.await.unwrap(), "it has ended without the lock");
    }

    /// Stops it, as a suspended machine does.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.guardian.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
