//! The arguments after the pattern of `#[lock_key(…)]` and `lock_key!`.

use super::SiteArgs;
use super::argument::{Argument, Known};
use super::value::{reason, tables};
use crate::errors::Errors;
use advisory_pattern::Derivation;
use proc_macro2::TokenStream;
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
    let site = SiteArgs::parse(tokens, Known::only(&KNOWN), errors, |argument| {
        pattern.read(argument);
    });
    site.refuse_redundant_without_guards(errors);
    (site, pattern)
}

impl PatternArgs {
    pub(crate) fn derivation(&self) -> Derivation {
        self.derivation.unwrap_or(Derivation::Sha256)
    }

    fn read(&mut self, argument: Argument<'_>) {
        match argument.name.to_string().as_str() {
            "guards" => argument.set(&mut self.guards, tables),
            "derivation" => {
                let derivations = Derivation::ALL.map(|known| (known.name(), known));
                argument.set_choice(&mut self.derivation, derivations);
            }
            "allow_ambiguous" => argument.set(&mut self.allow_ambiguous, reason),
            "allow_redundant" => argument.set(&mut self.allow_redundant, reason),
            _ => argument.not_implemented(),
        }
    }
}
