//! A thread for work that must not depend on the caller's runtime, which may be about to end, or have no timer.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::LazyLock;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

pub(super) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Waits for a future, until a time has passed.
pub(crate) async fn within<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    if time.is_zero() {
        let mut future = pin!(future);
        return poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await;
    }
    let (mut wake, woken) = oneshot::channel::<()>();
    run(Box::pin(async move {
        // Until then, or until the receiver is dropped.
        drop(tokio::time::timeout(time, wake.closed()).await);
    }));
    let (mut woken, mut future) = (pin!(woken), pin!(future));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        woken.as_mut().poll(context).map(|_| None)
    })
    .await
}

/// Runs a job on the thread, which the first job starts.
pub(super) fn run(job: Job) {
    static WORKER: LazyLock<mpsc::UnboundedSender<Job>> = LazyLock::new(|| {
        let (sender, mut jobs) = mpsc::unbounded_channel::<Job>();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    while let Some(job) = jobs.recv().await {
                        drop(tokio::spawn(job));
                    }
                });
            }
        };
        let thread = std::thread::Builder::new().name("advisory".to_owned());
        // Without a thread the jobs are dropped: then a session ends after the statement that it runs.
        drop(thread.spawn(work));
        sender
    });
    drop(WORKER.send(job));
}
