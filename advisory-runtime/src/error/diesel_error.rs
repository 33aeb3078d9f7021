//! Converts a product's error into one of Diesel's, and back.

use super::product::ProductError;
use super::{Error, PoolError};
use diesel::result::{DatabaseErrorInformation, Error as DieselError};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A reference to an error of this crate inside another error, from [`Error::find`] and the `find`
/// of the other error types.
#[derive(Debug)]
pub struct ErrorRef<'e, E = Error>(Inner<'e, E>);

/// An error that Diesel boxes can only be shared: Diesel's trait returns no reference to it.
#[derive(Debug)]
enum Inner<'e, E> {
    Borrowed(&'e E),
    Shared(Arc<E>),
}

impl<'e, E: ProductError> ErrorRef<'e, E> {
    /// This error, if it is a product's, or the one that it was converted from.
    pub(crate) fn of(error: &'e (dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(own) = error.downcast_ref() {
            return Some(Self(Inner::Borrowed(own)));
        }
        let DieselError::DatabaseError(_, answer) = error.downcast_ref()? else {
            return None;
        };
        let own = ask(&**answer)?.downcast().ok()?;
        Some(Self(Inner::Shared(own)))
    }
}

impl<E> Clone for ErrorRef<'_, E> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Inner::Borrowed(error) => Inner::Borrowed(error),
            Inner::Shared(error) => Inner::Shared(Arc::clone(error)),
        })
    }
}

impl<E> Deref for ErrorRef<'_, E> {
    type Target = E;

    fn deref(&self) -> &E {
        match &self.0 {
            Inner::Borrowed(error) => error,
            Inner::Shared(error) => error,
        }
    }
}

impl<E: fmt::Display> fmt::Display for ErrorRef<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}

pub(crate) fn from_diesel<E: ProductError>(error: DieselError) -> E {
    match error {
        DieselError::QueryBuilderError(inner) => match inner.downcast() {
            Ok(own) => *own,
            Err(inner) => match inner.downcast::<PoolError>() {
                Ok(pool) => (*pool).into(),
                Err(inner) => E::of_database(DieselError::QueryBuilderError(inner)),
            },
        },
        DieselError::DatabaseError(kind, answer) => {
            let own = ask(&*answer).and_then(|found| found.downcast::<E>().ok());
            let Some(own) = own else {
                return E::of_database(DieselError::DatabaseError(kind, answer));
            };
            drop(answer);
            Arc::try_unwrap(own).unwrap_or_else(|shared| {
                E::of_database(DieselError::DatabaseError(
                    kind,
                    Box::new(Answer::new(shared)),
                ))
            })
        }
        error => E::of_database(error),
    }
}

pub(crate) fn into_diesel<E: ProductError>(error: E) -> DieselError {
    match error.into_database() {
        Ok(error) => error,
        Err(error) => match error.database() {
            Some(&DieselError::DatabaseError(kind, _)) => {
                DieselError::DatabaseError(kind, Box::new(Answer::new(Arc::new(error))))
            }
            _ => DieselError::QueryBuilderError(Box::new(error)),
        },
    }
}

struct Answer<E> {
    error: Arc<E>,
    message: String,
}

impl<E: ProductError> Answer<E> {
    fn new(error: Arc<E>) -> Self {
        let mut answer = Self {
            message: error.to_string(),
            error,
        };
        // Both, so that a log names the lock, and a program can search for the server's message.
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

impl<E: ProductError> DatabaseErrorInformation for Answer<E> {
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

type Found = Arc<dyn Any + Send + Sync>;

thread_local! {
    static QUESTION: Cell<Question> = const { Cell::new(Question::None) };
}

#[derive(Default)]
enum Question {
    #[default]
    None,
    Asked,
    Answered(Found),
}

/// The product's error in an answer, if the answer is an [`Answer`].
///
/// Diesel's trait has no downcast and no method that could return the error. So this calls the
/// cheapest method, and [`Answer`]'s implementation leaves the error in the thread-local.
fn ask(answer: &dyn DatabaseErrorInformation) -> Option<Found> {
    QUESTION
        .try_with(|question| question.set(Question::Asked))
        .ok()?;
    answer.statement_position();
    match QUESTION.try_with(Cell::take) {
        Ok(Question::Answered(error)) => Some(error),
        _ => None,
    }
}

fn lend<E: ProductError>(error: &Arc<E>) {
    // The thread-local is gone only while the thread ends.
    let _ended = QUESTION.try_with(|question| {
        question.set(match question.take() {
            Question::Asked => {
                let error: Arc<E> = Arc::clone(error);
                Question::Answered(error)
            }
            // The inner answer of an answer, or a call from elsewhere.
            other => other,
        });
    });
}
