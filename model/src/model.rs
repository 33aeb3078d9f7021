//! The model as the checker sees it.

use crate::action::Action;
use crate::lease_property::LeaseProperty;
use crate::leases::Leases;
use crate::state::{Call, Caller, State};
use stateright::{Model, Property};

impl Model for Leases {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend([Action::Tick, Action::Sweep]);
        if state.standby.is_some() {
            actions.push(Action::FailOver);
        } else if state.timeline == 1 && state.faults < self.faults {
            actions.push(Action::FallBehind);
        }
        for process in 0..self.processes {
            self.steps(state, process, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.advance(&mut state, action)?;
        if self.is_symmetric {
            state.processes.sort_unstable();
        }
        Some(state).filter(|state| state != before)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LeaseProperty::OneHolder.name(), |_, state| {
                LeaseProperty::OneHolder.is_true(state)
            }),
            Property::always(LeaseProperty::NoLateWrite.name(), |_, state| {
                LeaseProperty::NoLateWrite.is_true(state)
            }),
            Property::always(LeaseProperty::TokensGrow.name(), |_, state| {
                LeaseProperty::TokensGrow.is_true(state)
            }),
            Property::always(LeaseProperty::DoneOnce.name(), |_, state| {
                LeaseProperty::DoneOnce.is_true(state)
            }),
            Property::sometimes("a lease is held", |_, state: &State| {
                let is_held = |process: &Caller| matches!(process.call, Call::Holding(_));
                state.processes.iter().any(is_held)
            }),
            Property::sometimes("a fenced write lands", |_, state: &State| {
                state.data.writer > 0
            }),
            Property::sometimes("every call is granted", |model: &Self, state: &State| {
                state.history.terms >= model.calls
            }),
            Property::sometimes("work is completed", |_, state: &State| {
                state.data.effects > 0 && state.data.row.is_some_and(|row| row.is_kept)
            }),
            Property::sometimes("a lease is held after a failover", |_, state: &State| {
                let is_held = |process: &Caller| {
                    matches!(process.call, Call::Holding(_)) && !process.is_deposed
                };
                state.timeline > 1 && state.processes.iter().any(is_held)
            }),
        ]
    }
}
