//! The arguments that both attributes have.

use super::argument::{not_implemented, set};
use super::duration::{self, Wait};
use super::value::{conversion, ident, returned};
use crate::errors::Errors;
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
    pub(crate) fn read(&mut self, name: &Ident, value: TokenStream, errors: &mut Errors) {
        macro_rules! set {
            ($slot:ident, $value:expr) => {{
                let value = $value;
                set(&mut self.$slot, name, value, errors);
            }};
        }
        match name.to_string().as_str() {
            "pool" => set!(pool, Some(value)),
            "wait" => set!(wait, duration::wait(value, name, errors)),
            "on_held" => set!(on_held, returned(value, name, errors)),
            "err" => set!(err, conversion(value, errors)),
            "handle" => set!(handle, ident(value, name, errors)),
            _ => not_implemented(name, errors),
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
