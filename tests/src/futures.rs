//! Futures that are dropped before they are ready, that panic, or that run in a task of their own.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::task::JoinHandle;

/// Like [`tokio::spawn`], which is compiled for each type of a future: some seventy functions.
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let future: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(future);
    tokio::spawn(future)
}

/// Like [`tokio::task::spawn_blocking`], and compiled only for each type of a result.
pub fn spawn_blocking<T: Send + 'static>(
    call: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let call: Box<dyn FnOnce() -> T + Send> = Box::new(call);
    tokio::task::spawn_blocking(call)
}

/// Drives the future until the state is reached, then drops it.
pub async fn dropped<T>(future: impl Future<Output = T>, reached: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        _ = future => panic!("the future should be dropped, and it finished"),
        () = reached => {}
    }
}

/// The future's value, or its panic.
pub async fn caught<F: Future>(future: F) -> std::thread::Result<F::Output> {
    let mut future = Box::pin(future);
    let result = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await;
    drop(future);
    result
}

/// Polls the future this many times, each time after it was woken; `true` if it was ready by then.
pub async fn is_ready_within<T>(polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
