//! How do two locks collide, and what does the message say?

use std::fmt;

use crate::advice::Side;
use crate::witness::Witness;

/// Says how two locks collide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collision {
    /// Both patterns can render the same key.
    Key(Witness),
    /// Both leases can have the same text as their key.
    Lease(Witness),
    /// Both keys are this number.
    Number(String),
    /// Two different keys have the same name.
    Name(String),
    /// One name has two numbers of permits.
    Permits(String),
    /// A lease and an advisory lock have the same name.
    Scopes(String),
}

/// ``both can render "t1:x": here tenant = "t1", …``, ``both are the number 42``, ``one name for two keys: `booking` ``
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

impl Collision {
    /// Says what is wrong.
    #[must_use]
    pub fn headline(&self, here: &Side<'_>, there: &Side<'_>) -> String {
        let (one, other) = (here.written, there.written);
        match self {
            Self::Key(_) if one == other && here.is_one_pattern(there) => {
                let kind = |side: &Side<'_>| side.item.starts_with("fn ");
                let sites = if kind(here) && kind(there) {
                    "functions"
                } else {
                    "sites"
                };
                format!("two {sites} lock the same key: `{one}`")
            }
            Self::Key(_) | Self::Number(_) => {
                format!("advisory lock keys can collide: `{one}` and `{other}`")
            }
            Self::Lease(_) => format!("lease keys can collide: `{one}` and `{other}`"),
            Self::Name(name) => {
                let (one, other) = if one == other {
                    (with_shapes(here), with_shapes(there))
                } else {
                    (one.to_owned(), other.to_owned())
                };
                format!("advisory lock `{name}` has two keys: `{one}` and `{other}`")
            }
            Self::Permits(name) => {
                format!("advisory lock `{name}` has two numbers of permits: `{one}` and `{other}`")
            }
            Self::Scopes(name) => {
                format!("advisory lock `{name}` is two locks: `{one}` and `{other}`")
            }
        }
    }
}

/// The key as it is compared.
fn with_shapes(side: &Side<'_>) -> String {
    let pattern = side.lock.pattern();
    pattern.map_or_else(
        || side.written.to_owned(),
        |pattern| side.key_of(&pattern.to_string()),
    )
}
