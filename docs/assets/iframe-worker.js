// A page that was opened as a file may not start a worker. There, a hidden frame runs the script instead:
// the site's search is the only user, which needs messages and nothing else.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      const start = () => {
        frame.contentWindow.postMessage = data =>
          this.dispatchEvent(new MessageEvent("message", { data }))
        const script = frame.contentDocument.createElement("script")
        script.src = new URL(url, document.baseURI).href
        script.onload = () => {
          this.ready = data =>
            frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
          this.waiting.splice(0).forEach(this.ready)
        }
        frame.contentDocument.head.append(script)
      }
      if (document.body) document.body.append(frame)
      else document.documentElement.append(frame)
      start()
    }
    postMessage(data) {
      if (this.ready) this.ready(data)
      else this.waiting.push(data)
    }
    terminate() {}
  }
}
