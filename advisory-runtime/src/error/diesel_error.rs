//! Converts a lock's error into one of Diesel's, and finds it there again.

use super::Error;
use diesel::result::{DatabaseErrorInformation, Error as DieselError};
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

impl Error {
    /// Finds a lock's error in an error of another type, by its chain of sources.
    ///
    /// Works on `diesel::result::Error` and on any error that gives its cause through `source()`. For `anyhow::Error`
    /// write `Error::find(&*error)`. To match on the variant write `.as_deref()` behind it.
    ///
    /// ```
    /// use advisory_runtime::Error;
    ///
    /// fn status(error: &diesel::result::Error) -> u16 {
    ///     match Error::find(error).as_deref() {
    ///         Some(Error::NotAvailable { .. }) => 409,
    ///         Some(lock) if lock.is_busy() => 504,
    ///         _ => 500,
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn find<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<ErrorRef<'e>> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(ErrorRef(Inner::Borrowed(found)));
            }
            // Diesel leaves both out of its chain of sources.
            match error.downcast_ref() {
                Some(DieselError::QueryBuilderError(inner)) => {
                    if let Some(found) = inner.downcast_ref() {
                        return Some(ErrorRef(Inner::Borrowed(found)));
                    }
                }
                Some(DieselError::DatabaseError(_, answer)) => {
                    return ask(&**answer).map(|found| ErrorRef(Inner::Shared(found)));
                }
                _ => {}
            }
            next = error.source();
        }
        None
    }
}

/// A lock's error that [`Error::find`] has found: it dereferences to [`Error`].
#[derive(Clone, Debug)]
pub struct ErrorRef<'e>(Inner<'e>);

/// An error that Diesel boxes does not expose a reference to what it contains.
#[derive(Clone, Debug)]
enum Inner<'e> {
    Borrowed(&'e Error),
    Shared(Arc<Error>),
}

impl Deref for ErrorRef<'_> {
    type Target = Error;

    fn deref(&self) -> &Error {
        match &self.0 {
            Inner::Borrowed(error) => error,
            Inner::Shared(error) => error,
        }
    }
}

impl fmt::Display for ErrorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

/// For bodies that return this error: the error of one of their statements.
impl From<DieselError> for Error {
    fn from(error: DieselError) -> Self {
        match error {
            DieselError::QueryBuilderError(inner) => match inner.downcast() {
                Ok(own) => *own,
                Err(inner) => Self::Database(DieselError::QueryBuilderError(inner)),
            },
            DieselError::DatabaseError(kind, answer) => match ask(&*answer) {
                Some(own) => {
                    drop(answer);
                    Arc::try_unwrap(own).unwrap_or_else(|shared| {
                        Self::Database(DieselError::DatabaseError(
                            kind,
                            Box::new(Answer::new(shared)),
                        ))
                    })
                }
                None => Self::Database(DieselError::DatabaseError(kind, answer)),
            },
            error => Self::Database(error),
        }
    }
}

/// What the database has answered as a `DatabaseError` of its kind, whose message has the server's in it; every other error inside
/// [`QueryBuilderError`](DieselError::QueryBuilderError).
impl From<Error> for DieselError {
    fn from(error: Error) -> Self {
        match error {
            Error::Database(error) => error,
            error => match error.database() {
                Some(&Self::DatabaseError(kind, _)) => {
                    Self::DatabaseError(kind, Box::new(Answer::new(Arc::new(error))))
                }
                _ => Self::QueryBuilderError(Box::new(error)),
            },
        }
    }
}

/// The database's answer, with the lock's error that it caused.
struct Answer {
    error: Arc<Error>,
    message: String,
}

impl Answer {
    fn new(error: Arc<Error>) -> Self {
        let mut answer = Self {
            message: error.to_string(),
            error,
        };
        // Both, so that a log names the lock, and a program that searches for the server's words finds them.
        if let Some(server) = answer.server() {
            let server = server.message().to_owned();
            if !answer.message.contains(&server) {
                answer.message = format!("{}: {server}", answer.message);
            }
        }
        answer
    }

    fn server(&self) -> Option<&(dyn DatabaseErrorInformation + Send + Sync)> {
        match self.error.database() {
            Some(DieselError::DatabaseError(_, server)) => Some(&**server),
            _ => None,
        }
    }
}

impl DatabaseErrorInformation for Answer {
    fn message(&self) -> &str {
        &self.message
    }

    fn details(&self) -> Option<&str> {
        self.server()?.details()
    }

    fn hint(&self) -> Option<&str> {
        self.server()?.hint()
    }

    fn table_name(&self) -> Option<&str> {
        self.server()?.table_name()
    }

    fn column_name(&self) -> Option<&str> {
        self.server()?.column_name()
    }

    fn constraint_name(&self) -> Option<&str> {
        self.server()?.constraint_name()
    }

    fn statement_position(&self) -> Option<i32> {
        lend(&self.error);
        self.server()?.statement_position()
    }
}

thread_local! {
    static QUESTION: Cell<Question> = const { Cell::new(Question::None) };
}

/// How [`ask`] and [`Answer`] communicate.
#[derive(Default)]
enum Question {
    #[default]
    None,
    Asked,
    Answered(Arc<Error>),
}

/// The lock's error in an answer, if the answer is an [`Answer`].
///
/// Diesel's trait cannot be downcast. So the cheapest method is called, and our implementation also leaves the error for the caller.
fn ask(answer: &dyn DatabaseErrorInformation) -> Option<Arc<Error>> {
    QUESTION
        .try_with(|question| question.set(Question::Asked))
        .ok()?;
    answer.statement_position();
    match QUESTION.try_with(Cell::take) {
        Ok(Question::Answered(error)) => Some(error),
        _ => None,
    }
}

fn lend(error: &Arc<Error>) {
    // The thread-local is gone only while the thread ends.
    let _ended = QUESTION.try_with(|question| {
        if let Question::Asked = question.take() {
            question.set(Question::Answered(Arc::clone(error)));
        }
    });
}
