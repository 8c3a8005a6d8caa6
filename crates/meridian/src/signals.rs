//! SIGINT and SIGTERM: the two ways of asking a command to end.

use tokio::signal::unix::{SignalKind, signal};

/// Ends when the process is asked to end.
pub(crate) async fn stop() {
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        // Without handlers the signals keep their usual effect and end the process themselves.
        _ => std::future::pending().await,
    }
}
