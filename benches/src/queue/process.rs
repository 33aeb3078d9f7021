//! A queue in a process of its own, and the processor time of the server.

use super::figures::Figures;
use crate::machine::busy_seconds;
use advisory_tests::OwnServer;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A program that runs queues, with the words that come before the queue's name.
pub(super) struct Program {
    file: PathBuf,
    words: &'static [&'static str],
}

impl Program {
    /// Compiles the one with the other queues.
    pub(super) fn build() -> Result<Self, Box<dyn Error>> {
        let folder = crate::machine::root().join("benches/queues");
        let target = folder.join("target");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo
            .args(["build", "--release", "--locked"])
            .current_dir(&folder);
        let status = cargo.env("CARGO_TARGET_DIR", &target).status()?;
        if !status.success() {
            return Err(format!("cargo build in benches/queues: {status}").into());
        }
        Ok(Self {
            file: target.join("release/advisory-bench-queues"),
            words: &[],
        })
    }

    /// This one.
    pub(super) fn this() -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            file: env::current_exe()?,
            words: &["--queue"],
        })
    }

    pub(super) fn start(&self, queue: &str, words: &[&str]) -> Result<Process, Box<dyn Error>> {
        let mut command = Command::new(&self.file);
        command.args(self.words).arg(queue).args(words);
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let what = format!("{queue} {}", words[0]);
        Ok(Process { what, child })
    }
}

pub(super) struct Process {
    what: String,
    child: Child,
}

impl Process {
    /// Waits for its end, and returns what it has printed.
    pub(super) fn wait(mut self) -> Result<String, Box<dyn Error>> {
        let mut printed = String::new();
        if let Some(mut output) = self.child.stdout.take() {
            output.read_to_string(&mut printed)?;
        }
        let status = self.child.wait()?;
        if status.success() {
            Ok(printed)
        } else {
            Err(format!("{}: {status}", self.what).into())
        }
    }

    /// Waits until it is ready to begin.
    pub(super) fn until_ready(mut self) -> Result<Ready, Box<dyn Error>> {
        let output = self.child.stdout.take().ok_or("its output is a pipe")?;
        let mut ready = Ready {
            process: self,
            lines: BufReader::new(output).lines(),
        };
        ready.next_line()?;
        Ok(ready)
    }
}

/// A process that begins to work when it is told.
pub(super) struct Ready {
    process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Ready {
    fn next_line(&mut self) -> Result<String, Box<dyn Error>> {
        let line = self.lines.next();
        Ok(line.ok_or_else(|| format!("{} has failed", self.process.what))??)
    }

    /// Lets it work, and takes its figures.
    pub(super) fn measure(mut self, server: &Server, jobs: u32) -> Result<Figures, Box<dyn Error>> {
        let (before, busy) = (server.processor_time()?, busy_seconds());
        let input = self.process.child.stdin.take();
        let mut input = input.ok_or("its input is a pipe")?;
        input.write_all(b"\n")?;
        let line = self.next_line()?;
        let others = busy_seconds() - busy;
        let server = server.processor_time()? - before;
        let words: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        let [time, client] = words?[..] else {
            return Err(format!("{}: {line}", self.process.what).into());
        };
        // Now it ends.
        drop(input);
        self.process.wait()?;
        let of_thousand = |seconds: f64| seconds * 1_000_000.0 / f64::from(jobs);
        Ok(Figures {
            rate: f64::from(jobs) / time,
            client: of_thousand(client),
            server: of_thousand(server),
            wal: 0.0,
            others: (others - client - server).max(0.0) / time,
        })
    }
}

/// The server, whose processes are counted.
pub(super) struct Server {
    url: String,
    postmaster: u32,
}

impl Server {
    pub(super) fn of(server: &OwnServer) -> Result<Self, Box<dyn Error>> {
        let file = fs::read_to_string(server.file("data/postmaster.pid"))?;
        let postmaster = file.lines().next().unwrap_or_default().trim().parse()?;
        Ok(Self {
            url: server.url().to_owned(),
            postmaster,
        })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The processor time of all its processes, also of those that have ended, in seconds.
    fn processor_time(&self) -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // A process may have ended meanwhile.
            let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).ok();
            let Some(stat) = read("stat") else { continue };
            let (_, rest) = stat.rsplit_once(") ").ok_or("no state of a process")?;
            let fields: Vec<&str> = rest.split(' ').collect();
            if process == self.postmaster {
                // Those that it has waited for, in ticks.
                let ticks: Result<Vec<f64>, _> =
                    fields[13..15].iter().map(|it| it.parse()).collect();
                sum += ticks?.iter().sum::<f64>() / 100.0;
            } else if fields[1].parse() == Ok(self.postmaster) {
                let time = read("schedstat").and_then(|text| text.split(' ').next()?.parse().ok());
                let nanoseconds: f64 =
                    time.ok_or("the system keeps no account of processor time")?;
                sum += nanoseconds / 1e9;
            }
        }
        Ok(sum)
    }
}
