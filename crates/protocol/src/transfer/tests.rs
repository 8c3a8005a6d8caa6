//! When moves count as standing still. That their steps are safe is tested in [`crate::object`].

use super::*;

fn claim(number: u64) -> Claim {
    Claim { number: Version(number, 0, 0), item: Bytes::from("x"), from: End::Head, to: End::Tail }
}

fn notice(leaving: &[(&'static str, &[u64])]) -> Notice {
    let leaving = leaving.iter().map(|(destination, numbers)| Leaving {
        destination: Bytes::from(*destination),
        claims: numbers.iter().map(|number| claim(*number)).collect(),
    });
    Notice { key: Bytes::from("q"), items: 0, leaving: leaving.collect() }
}

#[test]
fn a_move_stands_still_when_its_first_claim_does() {
    let mut mender = Mender::new(100);
    mender.on_notice(0, &notice(&[("a", &[1]), ("b", &[2])]));
    assert_eq!(mender.next_due(), Some(100));
    // One goes on, with new claims all the time, and the other does not.
    mender.on_notice(60, &notice(&[("a", &[3, 4]), ("b", &[2, 5])]));
    let due = mender.take_due(100);
    assert_eq!(due.len(), 1);
    assert_eq!((&due[0].1.destination[..], due[0].1.claims.len()), (&b"b"[..], 2));
    assert_eq!(mender.take_due(159), [], "it is given time again");
    mender.on_notice(160, &notice(&[]));
    assert_eq!(mender.next_due(), None);
}
