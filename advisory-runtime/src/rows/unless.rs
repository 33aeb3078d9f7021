//! A future, unless another one is ready first.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

/// The future's output, or `None` if `stop` resolves first.
pub(crate) async fn unless<T>(
    mut stop: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}
