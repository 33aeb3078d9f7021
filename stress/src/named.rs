//! Enums whose variants have names: in flags, files and tables.

/// Declares such an enum.
macro_rules! named {
    ($(#[$meta:meta])* $enum:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $enum {
            $($(#[$doc])* $variant,)*
        }

        impl $enum {
            pub(crate) const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl std::str::FromStr for $enum {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                let names = || Self::ALL.map(Self::name).join(", ");
                found.ok_or_else(|| format!("no `{name}`: write one of {}, or `all`", names()))
            }
        }
    };
}
pub(crate) use named;
