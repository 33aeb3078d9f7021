//! A process of an example that stops and resumes it.

use std::io;
use std::process::{Child, Command};

/// Killed when it is dropped, also if it is stopped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: &str) -> io::Result<()> {
        let process = self.0.id().to_string();
        let sent = Command::new("kill").args([signal, &process]).status()?;
        if sent.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("kill {signal}: {sent}")))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
