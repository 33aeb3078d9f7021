//! One site: what the arguments and the function mean together, checked.

mod check;
pub(crate) mod connection;
pub(crate) mod keys;
pub(crate) mod lease;
pub(crate) mod lock;

use crate::args::SiteArgs;
use crate::args::call::CallArgs;
use crate::function::Function;
use keys::SiteKeys;
use proc_macro2::TokenStream;

pub(crate) struct Site {
    pub(crate) args: SiteArgs,
    pub(crate) call: CallArgs,
    pub(crate) function: Function,
    pub(crate) keys: SiteKeys,
    pub(crate) record: TokenStream,
}
