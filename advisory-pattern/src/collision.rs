//! How do two locks collide, and what is said about it?

use std::fmt;

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
            Self::Permits(name) => write!(
                f,
                "`{name}` names both, and they let a different number of holders in"
            ),
            Self::Scopes(name) => write!(
                f,
                "`{name}` names a lease and an advisory lock, and who holds the one keeps nobody from the other"
            ),
        }
    }
}

impl Collision {
    /// Says what is wrong; `here` and `there` are the two keys as written.
    #[must_use]
    pub fn headline(&self, here: &str, there: &str) -> String {
        match self {
            Self::Key(_) | Self::Number(_) => {
                format!("advisory lock keys can collide: `{here}` and `{there}`")
            }
            Self::Lease(_) => format!("lease keys can collide: `{here}` and `{there}`"),
            Self::Name(name) => {
                format!("advisory lock `{name}` has two keys: `{here}` and `{there}`")
            }
            Self::Permits(name) => {
                format!("advisory lock `{name}` has two numbers of permits: `{here}` and `{there}`")
            }
            Self::Scopes(name) => {
                format!("advisory lock `{name}` is two locks: `{here}` and `{there}`")
            }
        }
    }

    /// Says what to write instead; `key` is the pattern of the site that gets the message, `word` the name of its function or type, if any.
    #[must_use]
    pub fn help(&self, key: &str, word: Option<&str>) -> String {
        match self {
            Self::Key(_) | Self::Lease(_) => {
                // A pair of numbers is not a pattern, and cannot start with a word.
                let word = word.filter(|_| !key.starts_with('('));
                let own = word.map_or_else(String::new, |word| format!(": `{word}:{key}`"));
                format!(
                    "if they are one lock, give both the same `name = \"…\"` or declare it once; if not, start one key with its own \
                     word{own}"
                )
            }
            Self::Number(_) => {
                "if they are one lock, give both the same `name = \"…\"`; if not, take another number".to_owned()
            }
            Self::Name(_) => {
                "one name is one text with the same shapes and derivation: write the same key, shapes included, or another name".to_owned()
            }
            Self::Permits(_) => {
                "one name is one lock: write the same `permits` at both, or at neither".to_owned()
            }
            Self::Scopes(_) => {
                "one name is one lock: write `scope = \"lease\"` at both or at neither, or another name".to_owned()
            }
        }
    }
}
