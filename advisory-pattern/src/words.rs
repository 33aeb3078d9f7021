//! The words for the variants of an enum, as a table.

/// Implements `ALL`, `name`, `variant` and `from_name` for an enum from a table of its variants with
/// their names, in the order in which they are listed to users.
macro_rules! words {
    ($enum:ident: $($variant:ident = $name:literal,)*) => {
        impl $enum {
            /// Every variant, in the order they are listed to users.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Returns the name that users write.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the variant's own name, as the attribute's expansion writes it.
            #[must_use]
            pub const fn variant(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }

            /// Finds the variant by the name that users write.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.name() == name)
            }
        }
    };
}
pub(crate) use words;
