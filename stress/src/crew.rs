//! Which processes run the load, and how are they reached?

use crate::assignment::Assignment;
use crate::clock::pass;
use crate::server::Failure;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The workers of one run; killed with this value.
pub(crate) struct Crew {
    /// What each is told, but for its number and its file.
    order: Assignment,
    workers: Vec<Worker>,
    size: usize,
    logs: Vec<PathBuf>,
    /// What those have begun that were killed.
    past: i64,
}

struct Worker {
    number: i64,
    child: Child,
    orders: ChildStdin,
    said: Arc<Said>,
}

/// What a worker has said last.
#[derive(Default)]
struct Said {
    last_success: AtomicI64,
    operations: AtomicI64,
    is_open: AtomicBool,
    is_quiet: AtomicBool,
}

impl Crew {
    /// In `order` the log is the folder of the logs.
    pub(crate) async fn start(order: Assignment, size: usize) -> Result<Self, Failure> {
        let mut crew = Self {
            order,
            workers: Vec::new(),
            size,
            logs: Vec::new(),
            past: 0,
        };
        crew.fill_up().await?;
        Ok(crew)
    }

    /// Starts a worker for each that is missing.
    pub(crate) async fn fill_up(&mut self) -> Result<(), Failure> {
        let there = self.workers.len();
        while self.workers.len() < self.size {
            let mut order = self.order.clone();
            order.number = i64::try_from(self.logs.len())? + 1;
            order.log = order.log.join(format!("worker-{}", order.number));
            self.logs.push(order.log.clone());
            let worker = Worker::start(&order)?;
            // One after the other, so that each can open its connections undisturbed.
            let end = Instant::now() + Duration::from_secs(30);
            while !worker.said.is_open.load(Ordering::Relaxed) {
                if Instant::now() > end {
                    return Err("a worker does not open its connections".into());
                }
                pass(Duration::from_millis(1)).await;
            }
            self.workers.push(worker);
        }
        for worker in &mut self.workers[there..] {
            writeln!(worker.orders, "go")?;
        }
        Ok(())
    }

    /// Kills one, and waits until it is gone.
    pub(crate) fn kill(&mut self, round: usize) -> Result<(), Failure> {
        let mut worker = self.workers.remove(round % self.workers.len());
        worker.child.kill()?;
        worker.child.wait()?;
        self.past += worker.said.operations.load(Ordering::Relaxed);
        Ok(())
    }

    /// Sends a signal to one.
    pub(crate) fn signal(&self, round: usize, signal: &str) -> Result<(), Failure> {
        let worker = &self.workers[round % self.workers.len()];
        let id = worker.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status()?;
        if sent.success() {
            Ok(())
        } else {
            Err(format!("kill {signal} {id}: {sent}").into())
        }
    }

    pub(crate) fn tell_all(&mut self, order: &str) {
        for worker in &mut self.workers {
            // Who is gone is missed where the load is looked at.
            drop(writeln!(worker.orders, "{order}"));
        }
    }

    /// Which workers are there.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        self.workers.iter().map(|worker| worker.number).collect()
    }

    /// Whether each worker that is there has had a success since then.
    pub(crate) fn have_succeeded_since(&self, then: i64) -> bool {
        let mut each = self.workers.iter();
        each.all(|worker| worker.said.last_success.load(Ordering::Relaxed) > then)
    }

    /// How many operations were begun so far.
    pub(crate) fn operations(&self) -> i64 {
        let each = self.workers.iter();
        let now: i64 = each
            .map(|worker| worker.said.operations.load(Ordering::Relaxed))
            .sum();
        self.past + now
    }

    /// Whether the load of each has ended.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut each = self.workers.iter();
        each.all(|worker| worker.said.is_quiet.load(Ordering::Relaxed))
    }

    /// The files of all that there were.
    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.logs
    }

    /// How many have ended without being killed.
    pub(crate) fn count_lost(&mut self) -> usize {
        let each = self.workers.iter_mut();
        each.filter_map(|worker| worker.child.try_wait().ok().flatten())
            .count()
    }
}

impl Worker {
    fn start(order: &Assignment) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(order.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a worker's pipes".into());
        };
        let said = Arc::new(Said::default());
        let heard = Arc::clone(&said);
        thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                let numbers = line.split_once(' ').and_then(|(success, count)| {
                    Some((success.parse().ok()?, count.parse().ok()?))
                });
                match numbers {
                    Some((success, count)) => {
                        heard.last_success.store(success, Ordering::Relaxed);
                        heard.operations.store(count, Ordering::Relaxed);
                    }
                    None if line == "open" => heard.is_open.store(true, Ordering::Relaxed),
                    None => heard.is_quiet.store(true, Ordering::Relaxed),
                }
            }
        });
        Ok(Self {
            number: order.number,
            child,
            orders,
            said,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be stopped: a kill ends it all the same.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
