// Browsers start no worker for a page that is opened from the disk. There, the
// script of the search's worker runs in a hidden frame with a worker's interface.
if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame
      const inner = frame.contentDocument
      inner.open()
      inner.write("<!doctype html><title>worker</title><body></body>")
      inner.close()
      frame.contentWindow.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inner.createElement("script")
      script.src = url
      // Messages wait until the script has its handlers.
      this.started = new Promise(resolve => script.addEventListener("load", resolve))
      script.addEventListener("error", () => this.dispatchEvent(new ErrorEvent("error", { message: `cannot load ${url}` })))
      inner.body.append(script)
    }

    postMessage(data) {
      const receiver = this.frame.contentWindow
      this.started.then(() => receiver.dispatchEvent(new receiver.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
  // The search's script asks its parent for this name.
  window.IFrameWorker = window.Worker = FrameWorker
}
