//! Collisions of two locks, and their messages.

pub(crate) mod advice;
mod headline;
pub(crate) mod lock;
pub(crate) mod site_collision;

use std::fmt;

use crate::language::witness::Witness;

/// The way in which two locks collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    /// Both patterns can render this key.
    Key(Witness),
    /// Both leases can have this text as their key.
    Lease(Witness),
    /// Both keys are this number.
    Number(String),
    /// Two different keys have this name.
    Name(String),
    /// Two locks with this name have different numbers of permits.
    Permits(String),
    /// A lease and an advisory lock have this name.
    Scopes(String),
}

/// ``both can render "t1:x": here tenant = "t1", …``, ``both are the number 42``, ``one name for
/// two keys: `booking` ``
impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(witness) | Self::Lease(witness) => witness.fmt(f),
            Self::Number(number) => write!(f, "both are the number {number}"),
            Self::Name(name) => write!(
                f,
                "`{name}` names both, and the keys differ in text, shapes or derivation"
            ),
            Self::Permits(name) => {
                write!(f, "`{name}` names both, with different numbers of permits")
            }
            Self::Scopes(name) => write!(
                f,
                "`{name}` names a lease and an advisory lock, which do not exclude each other"
            ),
        }
    }
}
