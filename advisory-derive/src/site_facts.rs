//! The facts about a lock site that its record contains, compared to find collisions.

use crate::args::choice::Scope;
use crate::tokens::{first_span, split_at_commas};
use advisory_pattern::{Derivation, Guess, KeySpace, LockedKey};
use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};

pub(crate) struct SiteFacts {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) purpose: Option<String>,
    pub(crate) keys: Vec<StaticKey>,
    pub(crate) with: Vec<(String, String)>,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function under a lock, which it takes at the node of rows or not.
    Lock {
        scope: Scope,
        is_at: bool,
    },
    Lease,
    Struct,
    Macro,
}

/// One key as written, and what is known of it before the program runs.
pub(crate) struct StaticKey {
    pub(crate) written: String,
    pub(crate) key: Option<LockedKey>,
    pub(crate) span: Span,
    /// The placeholders that are taken for text because their types are unknown.
    pub(crate) guesses: Vec<Guess>,
}

impl SiteFacts {
    /// The span of errors about the site as a whole.
    pub(crate) fn span(&self) -> Span {
        self.keys
            .first()
            .map_or_else(Span::call_site, |key| key.span)
    }

    /// ``fn `book` ``
    pub(crate) fn item(&self) -> String {
        if matches!(self.kind, Kind::Macro) {
            format!("`{}`", self.name)
        } else {
            format!("{} `{}`", self.kind.name(), self.name)
        }
    }

    pub(crate) fn key_space(&self, derivation: Derivation) -> KeySpace {
        match self.kind {
            Kind::Lock { .. } | Kind::Macro => KeySpace::Advisory,
            Kind::Lease => KeySpace::Lease,
            Kind::Struct => KeySpace::Declared.under(derivation),
        }
    }
}

impl Kind {
    /// True if the site takes its lock at the node of rows; `None` if it takes none.
    pub(crate) const fn is_at(self) -> Option<bool> {
        match self {
            Self::Lock { is_at, .. } => Some(is_at),
            Self::Lease | Self::Struct | Self::Macro => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lock { .. } | Self::Lease => "fn",
            Self::Struct => "struct",
            Self::Macro => "macro",
        }
    }

    pub(crate) const fn scope(self) -> &'static str {
        match self {
            Self::Lock { scope, .. } => scope.name(),
            Self::Lease => "lease",
            Self::Struct | Self::Macro => "none",
        }
    }
}

impl StaticKey {
    /// The key of an expression, known if it is a number, or a pair of which one is.
    pub(crate) fn of_expression(expression: &TokenStream) -> Self {
        Self {
            key: number_key(expression),
            ..Self::unknown(expression)
        }
    }

    /// The keys of an expression that gives several.
    pub(crate) fn unknown(expression: &TokenStream) -> Self {
        Self {
            written: expression.to_string(),
            key: None,
            span: first_span(expression),
            guesses: Vec::new(),
        }
    }
}

/// The key `42`, `-42`, `(42)`, or `(7, tenant_no)`.
fn number_key(expression: &TokenStream) -> Option<LockedKey> {
    let tokens: Vec<TokenTree> = expression.clone().into_iter().collect();
    if let [TokenTree::Group(group)] = tokens.as_slice()
        && group.delimiter() == Delimiter::Parenthesis
    {
        let parts = split_at_commas(group.stream());
        let (first, second) = match parts.as_slice() {
            [only] => return number_key(only),
            [first, second] => (first, second),
            _ => return None,
        };
        let half = |part| match number(part) {
            Some(number) => i32::try_from(number).ok().map(Some),
            // A constant has one value, which is unknown here, so it is not compared.
            None => (!names_constant(part)).then_some(None),
        };
        return Some(LockedKey::IntInt(half(first)?, half(second)?));
    }
    number(expression).map(LockedKey::BigInt)
}

fn names_constant(part: &TokenStream) -> bool {
    part.clone().into_iter().any(|token| match token {
        TokenTree::Ident(word) => word.to_string().starts_with(char::is_uppercase),
        TokenTree::Group(group) => names_constant(&group.stream()),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

fn number(expression: &TokenStream) -> Option<i64> {
    match syn::parse2(expression.clone()).ok()? {
        syn::Lit::Int(number) => number.base10_parse().ok(),
        _ => None,
    }
}

pub(crate) fn texts(with: &[(Ident, TokenStream)]) -> Vec<(String, String)> {
    let values = with.iter();
    values
        .map(|(name, expression)| (name.to_string(), expression.to_string()))
        .collect()
}
