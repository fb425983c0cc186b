//! Memory that is exhausted, at each allocation in turn.

use super::*;
use crate::storage::tests::with_memory_for;
use crate::topology::tests::scarce::OnScarce;

/// If no memory is available for the monitor of a member, the member is checked after the next
/// input for which memory is available.
#[test]
fn member_without_memory_for_its_monitor_has_one_after_the_next_input() {
    let mut late = 0;
    for count in 0.. {
        let ((rig, members), is_out) = with_memory_for(count, || {
            let options = TopologyOptions { seeds: &["a", "b"], ..TopologyOptions::default() }.validate().unwrap();
            let (config, mut log) = (POLLING.validate().unwrap(), Log::default());
            let control = Control::<OnScarce>::new(at(0), TopologyId::new(7), options, config, &mut log);
            let rig = control.map(|control| Rig { control, log, now: at(0) });
            (rig, ["a", "b"])
        });
        let Ok(mut rig) = rig else {
            assert!(is_out);
            continue;
        };
        rig.control.assert_invariants();
        let missing = members.map(|member| rig.control.monitor(rig.id(member)).is_none());
        late += u32::from(missing.contains(&true));
        assert_eq!(
            rig.lines().iter().filter(|line| line.ends_with("started")).count(),
            missing.iter().filter(|is| !**is).count()
        );

        // A missing monitor is not affected by any input.
        let (mut copy, mut log) = (rig.control.clone(), Log::default());
        let network = super::app::app_error(crate::topology::AppErrorKind::Network);
        let (owed, _) = with_memory_for(0, || {
            copy.request_check(at(1));
            let verdicts = members.map(|member| copy.handle_app_error(at(1), rig.id(member), &network, &mut log));
            assert!(verdicts.iter().all(|verdict| verdict.clear.is_some()));
            copy.assert_invariants();
            let missing_still = members.map(|member| copy.monitor(rig.id(member)).is_none());
            assert_eq!(missing_still, missing);
            copy.close(at(1), &mut log);
            copy.assert_invariants();
            core::iter::from_fn(|| copy.poll_action()).collect::<Vec<_>>()
        });
        assert_eq!(owed, [ControlAction::WakeSelectors], "the host never heard of any");
        assert_eq!((copy.is_closed(), copy.poll_timeout()), (true, None), "nothing is due ever again");

        rig.at(5);
        let a = rig.id("a");
        rig.control.handle_app_hello(rig.now, a, &mongos(), &mut rig.log);
        rig.control.assert_invariants();
        for member in members {
            rig.check(member, &mongos());
            assert_eq!(rig.server_type(member), ServerType::Mongos);
        }
        if !is_out {
            assert!(late > 3, "{late} had no monitor at first");
            return;
        }
    }
}

/// A member that is added later is likewise checked after the next input with available memory.
/// The checks of existing members continue.
#[test]
fn existing_members_are_checked_while_memory_for_others_is_exhausted() {
    let mut late = 0;
    for count in 0.. {
        let mut rig: Rig<OnScarce> =
            open_with(TopologyOptions { seeds: &["a"], ..TopologyOptions::default() }, POLLING);
        let conn = rig.connect("a");
        let a = rig.id("a");
        let hosts = ["a", "b", "c"];
        let (result, is_out) = with_memory_for(count, || rig.reply(a, conn, &primary(&hosts, 1)));
        assert_eq!(result, Ok(()));
        let names: Vec<_> = rig.control.topology().servers().map(|server| server.address().to_string()).collect();
        let missing = names.iter().filter(|name| rig.control.monitor(rig.id(name)).is_none()).count();
        late += u32::from(missing > 0);

        rig.control.handle_app_hello(rig.now, a, &primary(&hosts, 1), &mut rig.log);
        rig.control.assert_invariants();
        for other in ["b", "c"] {
            rig.check(other, &secondary(&hosts));
        }
        assert_eq!(hosts.map(|host| rig.server_type(host).is_known()), [true; 3]);
        if !is_out {
            assert!(late > 2, "{late} had no monitor at first");
            return;
        }
    }
}
