// A page that was opened as a file may not start a worker. There, a hidden frame runs the script instead:
// the site's search is the only user, which needs messages and nothing else.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.addEventListener("load", () => this.start(frame.contentWindow, url), { once: true })
      document.documentElement.append(frame)
    }
    start(inside, url) {
      const heard = data => inside.dispatchEvent(new MessageEvent("message", { data }))
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = new URL(url, document.baseURI).href
      script.addEventListener("load", () => {
        this.postMessage = heard
        this.waiting.splice(0).forEach(heard)
      })
      inside.document.head.append(script)
    }
    postMessage(data) { this.waiting.push(data) }
    terminate() {}
  }
}
