//! Tests of the texts and numbers that values become. None of it needs a database.
//!
//! The texts are golden: a changed key un-locks a fleet that is half upgraded. One that fails here is a bug, or a migration
//! that the changelog describes under "Keys".

mod cost;
mod dates;
mod declared;
mod injective;
mod matcher;
#[cfg(feature = "diesel-async")]
mod statement;
mod texts;
mod well_known;

macro_rules! rendered {
    ($pattern:tt, $type:ty: $value:expr) => {{
        #[derive(advisory_runtime::LockKey)]
        #[lock_key($pattern, allow_overlap("*", "texts are compared, nothing is locked"))]
        struct Lock {
            v: $type,
        }
        advisory_runtime::LockKey::rendered(&Lock { v: $value })
    }};
}
pub(crate) use rendered;

macro_rules! renders {
    ($pattern:tt, $type:ty: $value:expr => $text:expr) => {
        assert_eq!($crate::rendered!($pattern, $type: $value), $text)
    };
}
pub(crate) use renders;
