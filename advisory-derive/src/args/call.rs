//! The arguments that both attributes have.

use super::argument::Argument;
use super::duration::{self, Wait};
use super::value::{conversion, expression, ident, returned};
use crate::function::mentions;
use proc_macro2::{Ident, TokenStream};

#[derive(Default)]
pub(crate) struct CallArgs {
    pub(crate) pool: Option<TokenStream>,
    pub(crate) wait: Option<Wait>,
    pub(crate) on_held: Option<TokenStream>,
    pub(crate) err: Option<TokenStream>,
    pub(crate) handle: Option<Ident>,
}

impl CallArgs {
    pub(crate) fn read(&mut self, argument: Argument<'_>) {
        match argument.name.to_string().as_str() {
            "pool" => argument.set(&mut self.pool, expression),
            "wait" => argument.set(&mut self.wait, duration::wait),
            "on_held" => argument.set(&mut self.on_held, returned),
            "err" => argument.set(&mut self.err, conversion),
            "handle" => argument.set(&mut self.handle, ident),
            _ => argument.not_implemented(),
        }
    }

    pub(crate) fn use_name(&self, name: &Ident) -> bool {
        uses(
            [&self.on_held, &self.err, &self.pool].map(Option::as_ref),
            name,
        )
    }
}

pub(crate) fn uses<const N: usize>(written: [Option<&TokenStream>; N], name: &Ident) -> bool {
    let name = name.to_string();
    let mut written = written.into_iter().flatten();
    written.any(|written| mentions(written, &name))
}
