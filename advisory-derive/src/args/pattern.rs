//! The arguments after the pattern of `#[lock_key(…)]` and `lock_key!`.

use super::SiteArgs;
use super::argument::{Known, not_implemented, set};
use super::choice::choice;
use super::value::{reason, tables};
use crate::errors::Errors;
use advisory_pattern::Derivation;
use proc_macro2::{Ident, TokenStream};
use syn::LitStr;

pub(crate) const KNOWN: [&str; 9] = [
    "with",
    "name",
    "component",
    "guards",
    "allow_redundant",
    "derivation",
    "allow_ambiguous",
    "allow_overlap",
    "crate",
];

#[derive(Default)]
pub(crate) struct PatternArgs {
    pub(crate) guards: Option<Vec<String>>,
    pub(crate) allow_redundant: Option<LitStr>,
    pub(crate) derivation: Option<Derivation>,
    pub(crate) allow_ambiguous: Option<LitStr>,
}

pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> (SiteArgs, PatternArgs) {
    let mut pattern = PatternArgs::default();
    let site = SiteArgs::parse(
        tokens,
        Known::only(&KNOWN),
        errors,
        |name, value, errors| {
            pattern.read(name, value, errors);
        },
    );
    site.refuse_redundant_without_guards(errors);
    (site, pattern)
}

impl PatternArgs {
    pub(crate) fn derivation(&self) -> Derivation {
        self.derivation.unwrap_or(Derivation::Sha256)
    }

    fn read(&mut self, name: &Ident, value: TokenStream, errors: &mut Errors) {
        macro_rules! set {
            ($slot:ident, $value:expr) => {{
                let value = $value;
                set(&mut self.$slot, name, value, errors);
            }};
        }
        match name.to_string().as_str() {
            "guards" => set!(guards, tables(value, name, errors)),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                set!(derivation, choice(&value, name, derivations, errors));
            }
            "allow_ambiguous" => set!(allow_ambiguous, reason(value, name, errors)),
            "allow_redundant" => set!(allow_redundant, reason(value, name, errors)),
            _ => not_implemented(name, errors),
        }
    }
}
