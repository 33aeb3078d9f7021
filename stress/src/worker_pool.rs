//! The processes that run the load, and the connections to them.

use crate::assignment::Assignment;
use crate::clock::pass;
use crate::connection::Failure;
use crate::progress::Progress;
use advisory_tests::Proxy;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The workers of one run. Dropping this kills them.
pub(crate) struct WorkerPool {
    /// The arguments of each, without its number and its file.
    order: Assignment,
    workers: Vec<Worker>,
    size: usize,
    logs: Vec<PathBuf>,
    /// Whether each worker reaches the server through its own proxy.
    has_networks: bool,
    /// The counts of workers that were killed.
    past: Progress,
}

struct Worker {
    number: i64,
    child: Child,
    orders: ChildStdin,
    said: Arc<Said>,
    network: Option<Proxy>,
}

/// The last report of a worker.
#[derive(Default)]
struct Said {
    last_success: AtomicI64,
    progress: Mutex<Progress>,
    is_open: AtomicBool,
    is_quiet: AtomicBool,
}

impl WorkerPool {
    /// `log` in `order` is the folder of the logs.
    pub(crate) async fn start(
        order: Assignment,
        size: usize,
        has_networks: bool,
    ) -> Result<Self, Failure> {
        let mut worker_pool = Self {
            order,
            workers: Vec::new(),
            size,
            logs: Vec::new(),
            has_networks,
            past: Progress::default(),
        };
        worker_pool.fill_up().await?;
        Ok(worker_pool)
    }

    /// Starts a worker for each missing one.
    pub(crate) async fn fill_up(&mut self) -> Result<(), Failure> {
        let there = self.workers.len();
        while self.workers.len() < self.size {
            let mut order = self.order.clone();
            order.number = i64::try_from(self.logs.len())? + 1;
            order.log = order.log.join(format!("worker-{}", order.number));
            self.logs.push(order.log.clone());
            let network = if self.has_networks {
                let proxy = Proxy::before(&order.url).await;
                let name = application_name(order.number);
                order.url = format!("{} application_name='{name}'", proxy.url());
                Some(proxy)
            } else {
                None
            };
            let worker = Worker::start(&order, network)?;
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

    /// Kills a worker, and waits until it has exited.
    pub(crate) fn kill(&mut self, round: usize) -> Result<(), Failure> {
        let mut worker = self.workers.remove(round % self.workers.len());
        worker.child.kill()?;
        worker.child.wait()?;
        self.past.add(&worker.said.progress());
        Ok(())
    }

    /// Cuts off a worker: all traffic between it and the server is lost, but no connection is
    /// closed. Returns the name by which the server knows its sessions. They end when the worker is
    /// killed, as they would when the server's TCP gives up.
    pub(crate) fn vanish(&self, round: usize) -> Result<String, Failure> {
        let worker = &self.workers[round % self.workers.len()];
        let network = worker
            .network
            .as_ref()
            .ok_or("a worker without a network")?;
        network.stop_forwarding();
        Ok(application_name(worker.number))
    }

    /// Starts the load again after it has stopped.
    pub(crate) fn resume(&mut self) {
        for worker in &self.workers {
            worker.said.is_quiet.store(false, Ordering::Relaxed);
        }
        self.tell_all("go");
    }

    /// Sends a signal to one worker.
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

    /// Removes the workers that have exited.
    pub(crate) fn reap(&mut self) -> Result<(), Failure> {
        let mut running = Vec::new();
        for mut worker in self.workers.drain(..) {
            if worker.child.try_wait()?.is_some() {
                self.past.add(&worker.said.progress());
            } else {
                running.push(worker);
            }
        }
        self.workers = running;
        Ok(())
    }

    /// Tells one worker.
    pub(crate) fn tell(&mut self, round: usize, order: &str) -> Result<(), Failure> {
        let count = self.workers.len();
        Ok(writeln!(self.workers[round % count].orders, "{order}")?)
    }

    pub(crate) fn tell_all(&mut self, order: &str) {
        for worker in &mut self.workers {
            // Missing workers are detected by the progress check.
            drop(writeln!(worker.orders, "{order}"));
        }
    }

    /// The numbers of the running workers.
    pub(crate) fn numbers(&self) -> Vec<i64> {
        self.workers.iter().map(|worker| worker.number).collect()
    }

    /// Whether each running worker has succeeded since then.
    pub(crate) fn have_succeeded_since(&self, then: i64) -> bool {
        let mut each = self.workers.iter();
        each.all(|worker| worker.said.last_success.load(Ordering::Relaxed) > then)
    }

    /// The counts so far.
    pub(crate) fn progress(&self) -> Progress {
        let mut all = self.past.clone();
        for worker in &self.workers {
            all.add(&worker.said.progress());
        }
        all
    }

    /// Whether the load of each worker has ended.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut each = self.workers.iter();
        each.all(|worker| worker.said.is_quiet.load(Ordering::Relaxed))
    }

    /// The history files of all workers, also of those that were killed.
    pub(crate) fn logs(&self) -> &[PathBuf] {
        &self.logs
    }

    /// How many workers have exited without being killed.
    pub(crate) fn count_lost(&mut self) -> usize {
        let each = self.workers.iter_mut();
        each.filter_map(|worker| worker.child.try_wait().ok().flatten())
            .count()
    }
}

/// The `application_name` of a worker with its own proxy.
fn application_name(number: i64) -> String {
    format!("worker-{number}")
}

impl Said {
    fn progress(&self) -> Progress {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.clone()
    }
}

impl Worker {
    fn start(order: &Assignment, network: Option<Proxy>) -> Result<Self, Failure> {
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
                let numbers = line.split_once(' ').and_then(|(success, progress)| {
                    Some((success.parse().ok()?, Progress::parse(progress)?))
                });
                match numbers {
                    Some((success, progress)) => {
                        heard.last_success.store(success, Ordering::Relaxed);
                        *heard
                            .progress
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner) = progress;
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
            network,
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A stopped process can be killed too.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
