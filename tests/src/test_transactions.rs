//! Requests in Diesel's test transactions.

use advisory_runtime::{Error, Isolation, Request, Wait};
use diesel::QueryResult;
use std::time::Duration;

/// Every kind of request, and whether it is for a session-level lock.
pub fn requests() -> Vec<(Request, bool)> {
    let mut requests = Vec::new();
    for wait in [
        Wait::Session,
        Wait::Never,
        Wait::For(Duration::from_millis(40)),
        Wait::Forever,
    ] {
        for keys in [vec![8], vec![6, 8, 9]] {
            for request in [
                Request::all(keys.clone()),
                Request::all(keys.clone()).shared(),
            ] {
                let request = request.wait(wait);
                requests.push((request.clone(), true));
                requests.push((request.clone(), false));
                requests.push((request.clone().refuse_nested(), false));
                requests.push((request.clone().isolation(Isolation::RepeatableRead), false));
                requests.push((request.isolation(Isolation::Serializable), false));
            }
        }
    }
    requests
}

/// The call must have been refused because a transaction is open.
pub fn is_refused(result: QueryResult<usize>) {
    let error = Error::from(result.unwrap_err());
    assert!(matches!(error, Error::InTransaction { .. }), "{error:?}");
}
