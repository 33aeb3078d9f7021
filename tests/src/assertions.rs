//! Assertions about errors.

use advisory_runtime::Error;
use diesel::result::Error as DieselError;
use std::fmt::Debug;

/// An error, or the result of a call, for [`assert_error!`](crate::assert_error).
pub trait Ended {
    /// The error; `None` if the call has succeeded.
    fn error(&self) -> Option<&(dyn std::error::Error + 'static)>;
}

impl Ended for Error {
    fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

impl Ended for DieselError {
    fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self)
    }
}

impl<T, E: Ended + Debug> Ended for Result<T, E> {
    fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.as_ref().err().and_then(Ended::error)
    }
}

impl<E: Ended> Ended for &E {
    fn error(&self) -> Option<&(dyn std::error::Error + 'static)> {
        (**self).error()
    }
}

/// Asserts that a call has ended with this variant of a lock's error, which may be in one of
/// Diesel's.
///
/// Its fields, a condition, and what was tried, for the message, can follow.
#[macro_export]
macro_rules! assert_error {
    ($ended:expr, $variant:ident $(, $($tried:tt)+)?) => {
        $crate::assert_error!($ended, $variant { .. } $(, $($tried)+)?)
    };
    ($ended:expr, $variant:ident $fields:tt $(if $condition:expr)? $(, $($tried:tt)+)?) => {
        match &$ended {
            ended => {
                let error = $crate::Ended::error(ended);
                let found = error.and_then(::advisory_runtime::Error::find);
                assert!(
                    matches!(
                        found.as_deref(),
                        Some(::advisory_runtime::Error::$variant $fields) $(if $condition)?
                    ),
                    "{error:?}{}",
                    $crate::tried!($($($tried)+)?)
                );
            }
        }
    };
}

/// Asserts that a value matches a pattern, and shows it otherwise.
///
/// A condition, and what was tried, for the message, can follow.
#[macro_export]
macro_rules! assert_matches {
    ($value:expr, $pattern:pat $(if $condition:expr)? $(, $($tried:tt)+)?) => {
        match $value {
            $pattern $(if $condition)? => {}
            ref other => panic!("{other:?}{}", $crate::tried!($($($tried)+)?)),
        }
    };
}

/// Formats the description of a call, as the end of a message.
#[doc(hidden)]
#[macro_export]
macro_rules! tried {
    () => {
        ""
    };
    ($($tried:tt)+) => {
        format_args!(": {}", format_args!($($tried)+))
    };
}
