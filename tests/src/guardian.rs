//! Ends another process when this one ends, in whatever way: return, panic, Ctrl-C, `kill -9`.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that reads from a pipe of this process. If the pipe closes before a line arrives, the
/// shell kills the process, even a stopped one.
pub struct Guardian(Child);

impl Guardian {
    /// Guards a child of this process until this value is dropped.
    ///
    /// # Errors
    ///
    /// If the shell cannot be started.
    pub fn of(child: &Child) -> io::Result<Self> {
        // In a process group of its own, as in `lifeline`: it must outlive this process for a
        // moment.
        let shell = Command::new("sh")
            .args([
                "-c",
                "trap '' HUP INT QUIT TERM; read -r _ || kill -KILL \"$0\"",
            ])
            .arg(child.id().to_string())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(shell))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // Without this line it would kill whichever process has the number by then.
        let sent = self
            .0
            .stdin
            .take()
            .map(|mut pipe| pipe.write_all(b"leave\n"));
        drop(sent);
        drop(self.0.wait());
    }
}
